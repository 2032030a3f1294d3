"""What plugins would bring on recorded sessions, told without a model.

``recorded``: sessions from files of several forms; ``transcripts``: those of coding agents;
``replies``: messages to tokens; ``target``: a model that says what was recorded; ``curves``: what
forwards cost; ``running``: the real engine over all of it; ``summary``: its figures; ``page``: the
replies in the colours of their origins; ``command``: ``mlxfill bench forecast``.
"""
