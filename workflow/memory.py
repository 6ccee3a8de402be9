"""GPU memory of a run that verl trains, by phase, and memory of one that TRL trains on a CPU, from sizes alone.

Bytes of activations were fitted to live tensors of real passes on a CPU (tests/workflow/test_plan.py). What only a GPU
has (contexts, what a sleeping engine keeps, fragmentation) is assumed, and marked as such.
"""

from dataclasses import dataclass

from methods.adapters.verl.config import CHUNK, micro_batch_rows, packs_by_tokens
from methods.method import Method
from methods.training.spec import Training
from models.registry import Shape

GIB = 2**30

# Assumed, no GPU was at hand: what a process's context and libraries take, what vLLM keeps while it sleeps (its
# context, captured graphs), what vLLM needs beside weights and cache, and what the allocator holds beyond its tensors.
CONTEXT, ASLEEP, ENGINE_WORK = 1.0 * GIB, 1.5 * GIB, 1.5 * GIB
FRAGMENTATION = 1.08
LIBRARIES = 1.0  # GiB of torch, transformers and TRL: measured, with what the allocator holds
BUCKET = 2048 * 2**20  # bytes: `update_weights_bucket_megabytes` of verl's configuration (adapters/verl/config.yaml)

# Assumed mean lengths in tokens: of a prompt, and of a response as a share of the limit.
PROMPT, RESPONSE = 180, 0.2


@dataclass(frozen=True)
class Memory:
    """GiB on the fullest GPU of a run."""

    tokens: int  # of the largest micro-batch that the settings allow
    # sampling, old log-probs, update, optimiser step, weight sync: all that lies on the GPU in that phase
    phases: dict[str, float]
    states: float  # weights, moments and gradients in float32; part of `update`
    engine: float  # what the inference engine may take while it samples; part of `sampling`
    engine_least: float  # what it needs for weights and one longest sequence

    @property
    def phase(self) -> str:
        """The phase with the peak."""
        return max(self.phases, key=self.phases.__getitem__)

    @property
    def peak(self) -> float:
        return self.phases[self.phase]


def estimate(shape: Shape, training: Training, method: Method, card: float) -> Memory:
    """Memory of a run with verl on cards of `card` GiB.

    States: 12 bytes a parameter (weights and two moments in float32), 4 more for gradients, shared by the GPUs (FSDP2);
    none with `offload`. Beside them, per GPU: the parameters of two layers and of the head in the pass's precision, a
    layer's gradients, every layer's input (gradient checkpointing), one layer computed again, the attention mask of
    sdpa (tokens x tokens), and one chunk of the output head. A reference model lies in the host's memory. The
    optimiser's step has two temporaries of 4 bytes a parameter: AdamW's and the weights before the step. While weights
    go over to the engine, beside them lie the bucket that they go through and the largest tensor, gathered in float32
    (verl 0.9.1: `BucketedWeightSender`, `get_per_tensor_param`).
    """
    width = 2 if training.precision == "bfloat16" else 4  # bytes of a number in a pass
    share = 0 if training.offload else shape.parameters / training.gpus
    tokens = largest_batch(training, method)
    head = shape.vocab_size * shape.hidden_size
    mask = attention_mask(tokens, width) if training.attention == "sdpa" else 0
    gathered = 2 * width * shape.layer_parameters + width * head
    # Gradients before they are shared out: a layer's, and the head's until the end of the pass.
    on_layer = activations(shape, tokens, width) + mask + (2 * width + 4) * shape.layer_parameters + width * head
    on_end = 2 * (4 + width) * head
    base = CONTEXT + ASLEEP
    phases = {
        "sampling": CONTEXT + 12 * share + training.rollout_memory * card * GIB,
        "old log-probs": base
        + FRAGMENTATION * (12 * share + gathered + max(inference(shape, tokens, width) + mask, logits(shape, tokens))),
        "update": base
        + FRAGMENTATION * (16 * share + gathered + max(output_head(shape, tokens, width), on_layer, on_end)),
        "optimiser step": base + FRAGMENTATION * 24 * share,
        "weight sync": base
        + FRAGMENTATION * (12 * share + BUCKET + 4 * head)
        + 2 * shape.parameters / training.tensor_parallel,
    }
    cache_token = 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * 2
    longest = training.max_prompt_tokens + training.max_completion_tokens
    least = (2 * shape.parameters + cache_token * longest) / training.tensor_parallel + ENGINE_WORK
    return Memory(
        tokens=tokens,
        phases={name: total / GIB for name, total in phases.items()},
        states=16 * share / GIB,
        engine=training.rollout_memory * card,
        engine_least=least / GIB,
    )


def on_cpu(shape: Shape, training: Training) -> float:
    """GiB of a run that TRL trains in float32 on a CPU.

    16 bytes a parameter (weights, gradients, two moments), 8 more for two copies of the weights that movement is
    measured with, the libraries, and every layer's activations of a micro-batch at its longest, which are all kept.
    """
    heads, groups = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    layer = 6 * shape.hidden_size + 4 * shape.intermediate_size + 3 * heads + 4 * groups  # numbers per token
    rows = training.rows_per_minibatch // training.micro_batches
    prompts = -(-rows // training.samples_per_prompt) if training.shared_prefix else rows
    tokens = prompts * training.max_prompt_tokens + rows * training.max_completion_tokens
    return LIBRARIES + (24 * shape.parameters + 4 * tokens * shape.num_hidden_layers * layer) / GIB


def activations(shape: Shape, tokens: int, width: int = 2) -> float:
    """Bytes of a forward and backward pass with gradient checkpointing, without head and mask: every layer's input, and
    one layer computed again with its gradients."""
    attention = shape.num_attention_heads * shape.head_dim
    layer = 12 * shape.hidden_size + 6 * shape.intermediate_size + 4 * attention  # numbers per token
    return width * tokens * (shape.num_hidden_layers * shape.hidden_size + layer)


def output_head(shape: Shape, tokens: int, width: int = 2) -> float:
    """Bytes while the output head goes backward: every layer's input, one chunk of logits, and the head's gradient,
    whose sum over chunks is in float32 beside the product that is added to it."""
    inputs = width * tokens * shape.hidden_size * (shape.num_hidden_layers + 6)
    return inputs + logits(shape, tokens) + (4 + width) * shape.vocab_size * shape.hidden_size


def logits(shape: Shape, tokens: int) -> float:
    """Bytes of one chunk of the output head: two tensors in float32."""
    return 8 * min(CHUNK, tokens) * shape.vocab_size


def attention_mask(tokens: int, width: int = 2) -> float:
    """Bytes of sdpa's mask of packed sequences: tokens x tokens, as bool and in the precision of the pass."""
    return (1 + width) * tokens**2


def attention_flops(shape: Shape, training: Training, method: Method) -> float:
    """Floating-point operations of sdpa's attention in a rollout: old log-probs and updates, with recomputation.

    Packed sequences come with a mask of tokens x tokens, and all of it is multiplied: 4 L A T^2 for the T tokens of a
    micro-batch, L layers and attention width A. There are as many full micro-batches as responses of mean length fill.
    """
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    length = min(PROMPT, training.max_prompt_tokens) + RESPONSE * training.max_completion_tokens
    rows = training.prompts_per_rollout * training.samples_per_prompt
    # a backward pass is two forward passes; the update's forward pass is computed twice (gradient checkpointing)
    return (1 + 4 * training.passes) * 4 * width * rows * length * largest_batch(training, method)


def inference(shape: Shape, tokens: int, width: int = 2) -> float:
    """Bytes of a forward pass without gradient, without head and mask: one layer."""
    return width * tokens * (5 * shape.hidden_size + 3 * shape.intermediate_size)


def largest_batch(training: Training, method: Method) -> int:
    """Tokens of the largest micro-batch: the limit where verl packs by tokens, else its rows at their longest."""
    longest = training.max_prompt_tokens + training.max_completion_tokens
    share = training.rows_per_minibatch // training.gpus
    if packs_by_tokens(training, method):
        return min(training.max_tokens_per_gpu, share * longest)
    return min(micro_batch_rows(training, method), share) * longest
