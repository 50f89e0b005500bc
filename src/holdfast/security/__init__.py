"""Who may do what: principals, ACLs and one decision function for every gateway; SCRAM credentials; both as keys of the store."""
