"""What the models are asked: two free-form questions and two that copy from the prompt."""

from __future__ import annotations

TEXT = (
    "The old lighthouse stood on the northern cliff for more than a hundred years. Every evening "
    "the keeper climbed the narrow stairs, cleaned the glass, filled the lamp with oil and waited "
    "for the fog. Ships from Bergen and Aberdeen used its light to find the harbour, and the "
    "children of the village learned to count by the rhythm of its beam."
)

CODE = """\
def total_price(items, tax_rate):
    subtotal = 0.0
    for item in items:
        if item["quantity"] <= 0:
            continue
        subtotal += item["price"] * item["quantity"]
    tax = subtotal * tax_rate
    return round(subtotal + tax, 2)
"""

FREE_STORY = "Write a short story about a robot who learns to paint."
FREE_EXPLAIN = "Explain how photosynthesis works and why it matters."
COPY_TEXT = f"Repeat the following text exactly, word for word:\n\n{TEXT}"
COPY_CODE = (
    f"Here is a Python function:\n\n```python\n{CODE}```\n\n"
    "Write the same function again, but rename `subtotal` to `amount`. Output only the code."
)
