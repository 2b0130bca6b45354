"""What the demo model is made of, as the files that a Qwen2-VL checkpoint carries beside its weights.

Plain dictionaries and strings only, so that the generator, the trainer and the exporter can all read it
without importing torch or transformers.
"""

from __future__ import annotations

from typing import Any, Final

PATCH: Final = 14
MERGE: Final = 2
#: Sides of a resized picture are multiples of this; one vision token covers FACTOR x FACTOR pixels.
FACTOR: Final = PATCH * MERGE
#: 112 x 112: smaller pictures are enlarged, so that the smallest picture is still 16 vision tokens.
MIN_PIXELS: Final = 16 * FACTOR * FACTOR
#: 1,280 vision tokens: a 1,000 x 1,000 picture just about fits unshrunk.
MAX_PIXELS: Final = 1280 * FACTOR * FACTOR
IMAGE_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD: Final = (0.26862954, 0.26130258, 0.27577711)

VOCABULARY: Final = 3072
SPECIAL_TOKENS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
#: Special tokens take the last ids, as in the Qwen2 family.
FIRST_SPECIAL: Final = VOCABULARY - len(SPECIAL_TOKENS)
SPECIAL_IDS: Final = {token: FIRST_SPECIAL + place for place, token in enumerate(SPECIAL_TOKENS)}

HEAD_DIM: Final = 64
VISION_WIDTH: Final = 256
VISION_DEPTH: Final = 7
VISION_HEADS: Final = 4
# A whole number: transformers 5 takes no other.
VISION_MLP_RATIO: Final = 2
TEXT_WIDTH: Final = 256
TEXT_DEPTH: Final = 6
TEXT_HEADS: Final = 4
TEXT_KV_HEADS: Final = 2
TEXT_MLP: Final = 512
ROPE_THETA: Final = 10000.0
MAX_POSITIONS: Final = 4096
RMS_EPS: Final = 1e-6


def model_config() -> dict[str, Any]:
    """`config.json` in the flat form of the published Qwen2-VL checkpoints, which every reader still takes."""
    return {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "bos_token_id": SPECIAL_IDS["<|endoftext|>"],
        "eos_token_id": SPECIAL_IDS["<|im_end|>"],
        "pad_token_id": SPECIAL_IDS["<|endoftext|>"],
        "vision_start_token_id": SPECIAL_IDS["<|vision_start|>"],
        "vision_end_token_id": SPECIAL_IDS["<|vision_end|>"],
        "vision_token_id": SPECIAL_IDS["<|vision_pad|>"],
        "image_token_id": SPECIAL_IDS["<|image_pad|>"],
        "video_token_id": SPECIAL_IDS["<|video_pad|>"],
        "vocab_size": VOCABULARY,
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": TEXT_MLP,
        "num_hidden_layers": TEXT_DEPTH,
        "num_attention_heads": TEXT_HEADS,
        "num_key_value_heads": TEXT_KV_HEADS,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "max_position_embeddings": MAX_POSITIONS,
        "initializer_range": 0.02,
        "rms_norm_eps": RMS_EPS,
        "rope_theta": ROPE_THETA,
        "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
        "sliding_window": MAX_POSITIONS,
        "max_window_layers": TEXT_DEPTH,
        "use_sliding_window": False,
        "use_cache": True,
        "tie_word_embeddings": True,
        "vision_config": {
            "model_type": "qwen2_vl",
            "depth": VISION_DEPTH,
            "embed_dim": VISION_WIDTH,
            "hidden_size": TEXT_WIDTH,
            "hidden_act": "quick_gelu",
            "mlp_ratio": VISION_MLP_RATIO,
            "num_heads": VISION_HEADS,
            "in_channels": 3,
            "in_chans": 3,
            "patch_size": PATCH,
            "spatial_patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "initializer_range": 0.02,
        },
    }


def generation_config() -> dict[str, Any]:
    """Greedy by default: the model is made to read, and sampling only adds misreadings."""
    return {
        "bos_token_id": SPECIAL_IDS["<|endoftext|>"],
        "pad_token_id": SPECIAL_IDS["<|endoftext|>"],
        "eos_token_id": [SPECIAL_IDS["<|im_end|>"], SPECIAL_IDS["<|endoftext|>"]],
        "do_sample": False,
    }


def preprocessor_config() -> dict[str, Any]:
    """Both spellings of the pixel limits: older readers take min/max_pixels, newer ones `size`."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
        "image_mean": list(IMAGE_MEAN),
        "image_std": list(IMAGE_STD),
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGE,
    }


DEFAULT_SYSTEM: Final = "You are a helpful assistant."

# Gives, for the same messages, the same string as the template of the published Qwen2-VL checkpoints.
CHAT_TEMPLATE: Final = """\
{%- set counts = namespace(image=0, video=0) -%}
{%- if messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\\nDEFAULT_SYSTEM<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' or 'image' in part or 'image_url' in part -%}
{%- set counts.image = counts.image + 1 -%}
{%- if add_vision_id -%}{{- 'Picture ' ~ counts.image ~ ': ' -}}{%- endif -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part['type'] == 'video' or 'video' in part -%}
{%- set counts.video = counts.video + 1 -%}
{%- if add_vision_id -%}{{- 'Video ' ~ counts.video ~ ': ' -}}{%- endif -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- elif 'text' in part -%}
{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
""".replace("DEFAULT_SYSTEM", DEFAULT_SYSTEM)
