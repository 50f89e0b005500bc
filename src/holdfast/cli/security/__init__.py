"""Users, API keys and ACLs, by the store alone: whoever may write to it is an administrator, also before there is a first user."""
