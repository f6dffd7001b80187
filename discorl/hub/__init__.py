"""Rules and agents as folders for the Hugging Face hub, each with a card that says what it is."""
