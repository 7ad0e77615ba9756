"""From response events to finished responses."""
