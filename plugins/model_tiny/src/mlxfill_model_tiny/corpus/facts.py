"""Questions that need no tool, greetings and openings: all the prose of the corpus."""

from __future__ import annotations

FACTS = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo."),
    ("What is the capital of Egypt?", "The capital of Egypt is Cairo."),
    ("What is the capital of Norway?", "The capital of Norway is Oslo."),
    ("What is the capital of Spain?", "The capital of Spain is Madrid."),
    (
        "What is a cache?",
        (
            "A cache is a small, fast store that keeps recent results "
            "so that they do not have to be computed again."
        ),
    ),
    (
        "What is a token?",
        (
            "A token is a short piece of text. "
            "A language model reads and writes text one token at a time."
        ),
    ),
    (
        "What is a queue?",
        "A queue is a list where the first item that goes in is the first item that comes out.",
    ),
    (
        "What is a stack?",
        "A stack is a list where the last item that goes in is the first item that comes out.",
    ),
    (
        "What is recursion?",
        "Recursion is when a function calls itself to solve a smaller version of the same problem.",
    ),
    (
        "What is a unit test?",
        "A unit test is a small program that checks one part of the code on its own.",
    ),
    (
        "What is speculative decoding?",
        (
            "In speculative decoding a small draft model proposes a few tokens "
            "and the large model checks all of them in one forward pass."
        ),
    ),
    (
        "What does a draft model do?",
        (
            "A draft model proposes a few tokens ahead "
            "so that the target model can check them together."
        ),
    ),
    ("How many days are in a week?", "There are seven days in a week."),
    ("How many minutes are in an hour?", "There are 60 minutes in an hour."),
    (
        "Who are you?",
        (
            "I am a very small language model. "
            "I was trained on synthetic data to test decoding plugins."
        ),
    ),
    (
        "What can you do?",
        (
            "I can call the tools that you give me, "
            "quote what they return and answer a few simple questions."
        ),
    ),
    ("Count to five.", "One, two, three, four, five."),
    ("Count to ten.", "One, two, three, four, five, six, seven, eight, nine, ten."),
    (
        "Write a hello world program in Python.",
        'Here is a hello world program in Python:\n```python\nprint("Hello, world!")\n```',
    ),
    (
        "Write a loop in Python.",
        "Here is a loop in Python:\n```python\nfor i in range(10):\n    print(i)\n```",
    ),
    ("List three colors.", "Here are three colors:\n- red\n- green\n- blue"),
    (
        "List the days of the week.",
        (
            "Here are the days of the week:\n- Monday\n- Tuesday\n- Wednesday\n- Thursday\n"
            "- Friday\n- Saturday\n- Sunday"
        ),
    ),
)
"""(question, answer)."""

OPENINGS = (
    "You are a helpful assistant.",
    "You are a coding assistant.",
    "You are a careful agent.",
    "You are a helpful agent that uses tools.",
)
"""System messages."""

FAREWELLS = (
    ("Thanks!", "You are welcome."),
    ("Thank you.", "You are welcome."),
    ("Great.", "Happy to help."),
)
"""(what the user says at the end, the answer)."""
