"""The embedded engine: OpenVINO GenAI's continuous batching in a process of its own.

    python -m twinlens.engines.openvino --folder MODEL --socket PATH    (settings as JSON on standard input)

Who does what: the event loop speaks HTTP (`..server`), turns tokens into pieces (`answer`, `text`) and gives out the
KV cache (`room`); one thread drives the steps (`stepper`); one thread adds requests, which is where pictures are
encoded, and checks grammars before the steps ever see them (`model`, `grammar`); a few threads render prompts and
read pixels (`prompt`). Nothing of OpenVINO is imported outside this folder.
"""
