"""What a checkpoint says of itself: processor settings, vision-token arithmetic, words, identity of the weights."""
