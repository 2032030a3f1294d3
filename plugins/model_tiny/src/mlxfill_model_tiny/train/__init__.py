"""How the models of this package are made: ``python -m mlxfill_model_tiny.train``.

Parts, in the order in which they need each other: ``tokenizer``, ``target``,
``draft``, ``mtp``, ``dflash``, ``pack``.  Only text from :mod:`mlxfill_model_tiny.corpus` goes in.
"""
