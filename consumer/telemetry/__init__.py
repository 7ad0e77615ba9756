"""What the service says of itself: logs, metrics, health, and the clock that dates them."""
