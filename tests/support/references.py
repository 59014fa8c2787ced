"""Slow, obvious versions of the mixers: every row padded to n with zeros, torch's own modules, loops."""

import torch
import torch.nn.functional as F


def pad_rows(x, lengths, fixed_length):
    """T x B x C -> list of n x C, one for each sentence: its own tokens, then zeros."""
    rows = []
    for number, length in enumerate(lengths):
        row = x.new_zeros(fixed_length, x.size(2))
        rows.append(torch.cat([x[:length, number], row[length:]]))
    return rows


def attend_one(mixer, tokens, keys, values):
    """One sentence: T x C queries' input, S x C keys and values -> T x C, head by head and query by query."""
    queries = tokens @ mixer.q_proj.weight.t() + mixer.q_proj.bias
    width = mixer.head_dim
    heads = []
    for head in range(mixer.num_heads):
        part = slice(head * width, (head + 1) * width)
        rows = []
        for query in queries[:, part]:
            scores = torch.stack([(query * key).sum() / width**0.5 for key in keys[:, part]])
            weights = scores.exp() / scores.exp().sum()
            rows.append(sum(weight * value for weight, value in zip(weights, values[:, part])))
        heads.append(torch.stack(rows))
    return torch.cat(heads, dim=1) @ mixer.out_proj.weight.t() + mixer.out_proj.bias


def low_rank(mixer, x, lengths):
    """List of (length x C) outputs, one a sentence."""
    key_map = mixer.projection.weight
    value_map = key_map if mixer.value_projection is None else mixer.value_projection.weight
    outputs = []
    for number, row in enumerate(pad_rows(x, lengths, mixer.projection.fixed_length)):
        for_keys = torch.stack([sum(e * token for e, token in zip(slot, row)) for slot in key_map])
        for_values = torch.stack([sum(e * token for e, token in zip(slot, row)) for slot in value_map])
        keys = for_keys @ mixer.k_proj.weight.t() + mixer.k_proj.bias
        values = for_values @ mixer.v_proj.weight.t() + mixer.v_proj.bias
        outputs.append(attend_one(mixer, x[: lengths[number], number], keys, values))
    return outputs


def convolve(projection, row):
    """n x C -> (r / pool) x C with torch's Conv1d and MaxPool1d, Leaky-ReLU last but one as the paper writes it."""
    weight = projection.weight.permute(2, 1, 0)  # k x C_in x C_out -> C_out x C_in x k
    out = F.conv1d(row.t().unsqueeze(0), weight, projection.bias, stride=projection.kernel_size)
    out = F.max_pool1d(F.leaky_relu(out), projection.pool_size)
    return out.squeeze(0).t()


def convolutional(mixer, x, lengths):
    """List of (length x C) outputs, one a sentence."""
    for_values = mixer.projection if mixer.value_projection is None else mixer.value_projection
    n = mixer.projection.fixed_length
    outputs = []
    for number, length in enumerate(lengths):
        tokens = x[:length, number]
        keys = F.pad(tokens @ mixer.k_proj.weight.t() + mixer.k_proj.bias, (0, 0, 0, n - length))
        values = F.pad(tokens @ mixer.v_proj.weight.t() + mixer.v_proj.bias, (0, 0, 0, n - length))
        keys, values = convolve(mixer.projection, keys), convolve(for_values, values)
        if mixer.drop_null_slots:
            filled = -(-length // (mixer.projection.kernel_size * mixer.projection.pool_size))
            keys, values = keys[:filled], values[:filled]
        outputs.append(attend_one(mixer, tokens, keys, values))
    return outputs


def information_organization(mixer, x, lengths):
    """List of (length x C) outputs, one a sentence, through torch's own pooling and unpooling."""
    outputs = []
    for number, row in enumerate(pad_rows(x, lengths, mixer.fixed_length)):
        hidden = F.leaky_relu(mixer.compress(row.unsqueeze(0)))  # 1 x n x d
        pooled, indices = F.max_pool1d(hidden, 2, return_indices=True)
        out = mixer.expand(F.max_unpool1d(pooled, indices, 2))  # 1 x n x C
        outputs.append(out[0, : lengths[number]])
    return outputs


def assert_equal_with_gradients(mixer, reference, x, lengths, mask):
    """Asserts that fast and slow version agree to 1e-10 in outputs and in the gradients of input and parameters."""
    weights = [torch.randn(length, x.size(2), dtype=x.dtype) for length in lengths]

    def run(outputs):
        mixer.zero_grad()
        inputs = x.clone().requires_grad_()
        outputs = outputs(inputs)
        sum((out * weight).sum() for out, weight in zip(outputs, weights)).backward()
        gradients = {name: parameter.grad.clone() for name, parameter in mixer.named_parameters()}
        return [out.detach() for out in outputs], gradients, inputs.grad

    def fast(inputs):
        out = mixer(inputs, mask)
        return [out[:length, number] for number, length in enumerate(lengths)]

    outputs, gradients, input_gradient = run(fast)
    expected, expected_gradients, expected_input_gradient = run(lambda inputs: reference(mixer, inputs, lengths))
    for out, slow in zip(outputs, expected):
        torch.testing.assert_close(out, slow, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(input_gradient, expected_input_gradient, rtol=1e-9, atol=1e-10)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-9, atol=1e-10, msg=name)


def random_input(length, batch_size, width, fill_padding=7.0):
    """T x B x C in float64 with random lengths (the first row full), noise at padded positions, and the mask."""
    lengths = [length] + [int(torch.randint(1, length + 1, ())) for _ in range(batch_size - 1)]
    x = torch.randn(length, batch_size, width, dtype=torch.float64)
    mask = torch.arange(length).unsqueeze(0) >= torch.tensor(lengths).unsqueeze(1)  # B x T
    x = x + fill_padding * mask.t().unsqueeze(2)
    return x, lengths, mask
