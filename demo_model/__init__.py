"""The demo model: data generator, tokenizer, training, evaluation and export. Not part of the installed package."""
