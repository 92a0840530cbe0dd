"""What runs a session: taking it, the loop around a model, the recorder of what it says, and recovery."""
