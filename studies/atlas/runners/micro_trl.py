"""TRL's own `train()`, one optimizer step: sampler, `_prepare_inputs`, `compute_loss`, Accelerate, and DDP over gloo.

Ours: a tiny model whose `generate` returns fixed responses, a reward by words, no shuffling of rows (so that the first
update of every setting has the same 16 rows), and a callback that reads the gradient before the optimizer's step.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import tempfile
from collections import Counter

import torch
from common import COPIES, END, LONGEST, PAD, PROMPTS, VOCABULARY, response, reward_of, run
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

# one of each denominator: CISPO and VESPO have DAPO's, SAPO and GSPO have GRPO's
KINDS = {"GRPO": "grpo", "DAPO": "dapo", "BNPO": "bnpo", "Dr. GRPO": "dr_grpo", "LUSPO": "luspo"}
SOURCE = inspect.getsource(GRPOTrainer)
FIELDS = {field.name for field in dataclasses.fields(GRPOConfig)}
if hasattr(grpo_trainer, "shuffle_sequence_dict"):
    grpo_trainer.shuffle_sequence_dict = lambda rows: rows
words = Tokenizer(models.WordLevel({**{str(n): n for n in range(END)}, "<end>": END, "<pad>": PAD}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()


def generate(input_ids, **_):
    copies, rows = Counter(), []
    for prompt in input_ids[:, -1].tolist():
        rows.append(torch.tensor(response(prompt, copies[prompt] % COPIES)))
        copies[prompt] += 1
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return torch.cat([input_ids, padded], dim=1)


def reward(completions, **_):
    return [reward_of([int(word) for word in text.split() if word.isdigit()]) for text in completions]


class Gradient(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.value = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


def gradient(accumulation, steps_per_generation=1, **changes):
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, eos_token_id=END, pad_token_id=PAD, bos_token_id=END)  # fmt: skip
    model = Qwen2ForCausalLM(config).double()
    model.generate = generate
    model.config._name_or_path = "tiny"
    prompts = PROMPTS * max(1, steps_per_generation // accumulation)
    wanted = {
        "output_dir": tempfile.mkdtemp(), "num_generations": COPIES, "max_completion_length": LONGEST, "beta": 0.0,
        "per_device_train_batch_size": PROMPTS * COPIES // accumulation // int(os.environ["WORLD_SIZE"]),
        "gradient_accumulation_steps": accumulation, "steps_per_generation": steps_per_generation, "max_steps": 1,
        "max_grad_norm": 0.0, "bf16": False, "use_cpu": True, "ddp_backend": "gloo", "report_to": [], "seed": 0,
        "save_strategy": "no", "shuffle_dataset": False, "disable_tqdm": True, "gradient_checkpointing": False,
        "use_vllm": False, "log_completions": False, "dataloader_pin_memory": False, **changes,
    }  # fmt: skip
    seen = Gradient()
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(**{key: value for key, value in wanted.items() if key in FIELDS}),
        train_dataset=Dataset.from_dict({"prompt": [str(n % END) for n in range(prompts)]}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, eos_token="<end>", pad_token="<pad>", padding_side="left"
        ),
        callbacks=[seen],
    )
    trainer.train()
    return seen.value


kinds = {name: {"loss_type": kind} for name, kind in KINDS.items() if f'"{kind}"' in SOURCE}
run(kinds if "loss_type" in FIELDS else {"GRPO": {}}, gradient, generations="steps_per_generation" in FIELDS)
