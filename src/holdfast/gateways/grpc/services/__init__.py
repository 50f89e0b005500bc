"""The services, a file each: requests to what is behind the gateway, and its answers as messages."""
