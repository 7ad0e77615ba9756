"""`formats`: what the service reads, and which format each message of a capture has."""
