"""The demo target (Qwen3's architecture, small) and its DFlash drafter, as they are trained.

Modules are named as in the published checkpoints, so that state_dict() gives the names of the weights' files. Shapes in the
comments: B sequences, T tokens, N heads, H the size of the hidden state.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TARGET_CONFIG = dict(
    vocab_size=4096,
    hidden_size=320,
    intermediate_size=896,
    num_hidden_layers=6,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    rms_norm_eps=1e-6,
    rope_theta=100000.0,
    max_position_embeddings=4096,
)
DRAFTER_CONFIG = dict(TARGET_CONFIG, num_hidden_layers=2, block_size=16, target_layer_ids=[1, 3, 4], mask_token_id=3)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]  # ids 0 to 3
END_OF_TEXT = 0


def rms_norm(x, weight, eps=1e-6):
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)


def rotary_tables(positions, head_dim, theta):
    """Cosines and sines for each position, [..., head_dim]."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim)
    angles = positions.float()[..., None] * inverse
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x, tables):
    """Rotary embedding of x [B, N, T, head_dim]; the tables are [T, head_dim] or [B, T, head_dim]."""
    cosines, sines = (table.to(x.dtype) for table in tables)
    if cosines.dim() == 2:
        cosines, sines = cosines[None, None], sines[None, None]
    else:
        cosines, sines = cosines[:, None], sines[:, None]
    half = x.shape[-1] // 2
    return x * cosines + torch.cat([-x[..., half:], x[..., :half]], -1) * sines


class Attention(nn.Module):
    """Projections of grouped-query attention, with a norm over each head's query and key."""

    def __init__(self, config):
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.q_norm = nn.Parameter(torch.ones(self.head_dim))
        self.k_norm = nn.Parameter(torch.ones(self.head_dim))

    def split(self, x, heads):
        """[B, T, heads * head_dim] to [B, heads, T, head_dim]."""
        return x.view(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)

    def queries(self, x, tables):
        return rotate(rms_norm(self.split(self.q_proj(x), self.heads), self.q_norm), tables)

    def keys(self, x, tables):
        return rotate(rms_norm(self.split(self.k_proj(x), self.kv_heads), self.k_norm), tables)

    def values(self, x):
        return self.split(self.v_proj(x), self.kv_heads)

    def attend(self, queries, keys, values, **mask):
        output = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True, **mask)
        return self.o_proj(output.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """The weights of one layer. How they are used differs between target and drafter."""

    def __init__(self, config):
        super().__init__()
        self.input_layernorm = nn.Parameter(torch.ones(config["hidden_size"]))
        self.post_attention_layernorm = nn.Parameter(torch.ones(config["hidden_size"]))
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)

    def add_feed_forward(self, x):
        return x + self.mlp(rms_norm(x, self.post_attention_layernorm))


class Target(nn.Module):
    """A causal language model; the embedding is the output matrix too."""

    def __init__(self, config=TARGET_CONFIG):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(config["hidden_size"]))
        # What writes into the residual stream begins smaller, the more layers there are.
        residual_std = 0.02 / math.sqrt(2 * config["num_hidden_layers"])
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                writes_residual = "o_proj" in name or "down" in name
                nn.init.normal_(parameter, std=residual_std if writes_residual else 0.02)

    def rotary(self, first, count, device):
        positions = torch.arange(first, first + count, device=device)
        return rotary_tables(positions, self.config["head_dim"], self.config["rope_theta"])

    def forward(self, ids, feature_layers=None):
        """Hidden states [B, T, H] of ids [B, T]. With feature_layers also the outputs of those layers, side by side."""
        x = self.embed_tokens(ids)
        tables = self.rotary(0, ids.shape[1], ids.device)
        features = []
        for index, layer in enumerate(self.layers):
            attention, normed = layer.self_attn, rms_norm(x, layer.input_layernorm)
            x = x + attention.attend(
                attention.queries(normed, tables),
                attention.keys(normed, tables),
                attention.values(normed),
                is_causal=True,
            )
            x = layer.add_feed_forward(x)
            if feature_layers and index in feature_layers:
                features.append(x)
        hidden = rms_norm(x, self.norm)
        return (hidden, torch.cat(features, -1)) if feature_layers else hidden

    def step(self, ids, position, cache):
        """Hidden states of ids [B, T] appended at `position`: the whole prompt at 0, or one token behind it.

        The cache has a pair (keys, values) for each layer, each [B, kv heads, longest T, head_dim].
        """
        x = self.embed_tokens(ids)
        end = position + ids.shape[1]
        tables = self.rotary(position, ids.shape[1], ids.device)
        is_prompt = ids.shape[1] > 1 and position == 0
        for layer, (keys, values) in zip(self.layers, cache):
            attention, normed = layer.self_attn, rms_norm(x, layer.input_layernorm)
            keys[:, :, position:end] = attention.keys(normed, tables)
            values[:, :, position:end] = attention.values(normed)
            queries = attention.queries(normed, tables)
            x = x + attention.attend(queries, keys[:, :, :end], values[:, :, :end], is_causal=is_prompt)
            x = layer.add_feed_forward(x)
        return rms_norm(x, self.norm)


class Drafter(nn.Module):
    """A DFlash drafter: fills all slots of a block at once, looking at the target's features of the context."""

    def __init__(self, config=DRAFTER_CONFIG):
        super().__init__()
        self.config = config
        hidden = config["hidden_size"]
        self.fc = nn.Linear(len(config["target_layer_ids"]) * hidden, hidden, bias=False)
        self.hidden_norm = nn.Parameter(torch.ones(hidden))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, features, block, context_positions, block_positions, mask):
        """Hidden states of the block's slots.

        features [B, C, feature layers * H] of C context tokens; block [B, Q, H], the embedded slots; positions [B, C] and
        [B, Q]; mask [B, 1, Q, C + Q], true where a slot may look.
        """
        context = rms_norm(self.fc(features), self.hidden_norm)
        x = block
        head_dim, theta = self.config["head_dim"], self.config["rope_theta"]
        context_tables = rotary_tables(context_positions, head_dim, theta)
        block_tables = rotary_tables(block_positions, head_dim, theta)
        for layer in self.layers:
            attention, normed = layer.self_attn, rms_norm(x, layer.input_layernorm)
            keys = torch.cat([attention.keys(context, context_tables), attention.keys(normed, block_tables)], 2)
            values = torch.cat([attention.values(context), attention.values(normed)], 2)
            x = x + attention.attend(attention.queries(normed, block_tables), keys, values, attn_mask=mask)
            x = layer.add_feed_forward(x)
        return rms_norm(x, self.norm)


def file_name(name, prefix):
    """A parameter's name in the weights' file: norms, which are bare parameters here, are called ".weight" there."""
    return prefix + (name if name.endswith(".weight") else name + ".weight")


def export_weights(module, prefix):
    """The weights in bfloat16 by their names in the file."""
    return {
        file_name(name, prefix): parameter.detach().to(torch.bfloat16).contiguous().cpu()
        for name, parameter in module.state_dict().items()
    }


@torch.no_grad()
def import_weights(module, weights, prefix):
    for name, parameter in module.state_dict().items():
        parameter.copy_(weights[file_name(name, prefix)].to(parameter.dtype))


def count_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())
