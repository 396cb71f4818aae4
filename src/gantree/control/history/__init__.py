"""What a turn adds to the history, and the history made anew from facts."""
