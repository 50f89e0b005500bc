"""Leadership rotation: a partition's segment is sealed once it is long enough, and its next leader is another agent."""
