"""The intermediate representation: the ops of the `pw` dialect, programs made of them, and the rules of each phase."""
