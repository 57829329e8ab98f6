"""Guest code in the trainer."""
