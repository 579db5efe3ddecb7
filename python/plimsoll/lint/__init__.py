"""`plimsoll lint`: static rules for services. Nothing of the user's code is imported; only `ast` reads it."""
