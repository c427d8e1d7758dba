// A tiny mixture of experts with random weights and the tokenizer of the demo model, written as a model folder.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [LAYERS, HIDDEN, HEADS, WIDTH, EXPERTS, CHOSEN] = [2, 64, 4, 96, 4, 2];

/** Shapes of all tensors by name. */
function shapes(vocab: number): [string, number[]][] {
  const list: [string, number[]][] = [
    ['model.embed_tokens.weight', [vocab, HIDDEN]],
    ['lm_head.weight', [vocab, HIDDEN]],
    ['model.norm.weight', [HIDDEN]],
  ];
  for (let l = 0; l < LAYERS; l++) {
    const at = `model.layers.${l}`;
    for (const p of ['q', 'k', 'v', 'o'])
      list.push([`${at}.self_attn.${p}_proj.weight`, [HIDDEN, HIDDEN]]);
    for (const norm of ['input', 'post_attention'])
      list.push([`${at}.${norm}_layernorm.weight`, [HIDDEN]]);
    list.push([`${at}.block_sparse_moe.gate.weight`, [EXPERTS, HIDDEN]]);
    for (let e = 0; e < EXPERTS; e++)
      for (const [w, shape] of [
        ['w1', [WIDTH, HIDDEN]],
        ['w2', [HIDDEN, WIDTH]],
        ['w3', [WIDTH, HIDDEN]],
      ] as [string, number[]][])
        list.push([`${at}.block_sparse_moe.experts.${e}.${w}.weight`, shape]);
  }
  return list;
}

/** The same numbers in every test run: a linear congruential generator. */
function weights(count: number, seed: number): Float32Array {
  let state = seed >>> 0;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 32 - 0.5) / 4;
  });
}

/** Writes the model `name` into the folder of models. */
export function writeMixture(models: string, name: string, demo: string): void {
  const folder = join(models, name);
  mkdirSync(folder, { recursive: true });
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    copyFileSync(join(demo, file), join(folder, file));
  const { vocab_size } = JSON.parse(readFileSync(join(demo, 'config.json'), 'utf8')) as {
    vocab_size: number;
  };
  writeFileSync(
    join(folder, 'config.json'),
    JSON.stringify({
      architectures: ['MixtralForCausalLM'],
      model_type: 'mixtral',
      vocab_size,
      hidden_size: HIDDEN,
      intermediate_size: WIDTH,
      num_hidden_layers: LAYERS,
      num_attention_heads: HEADS,
      num_key_value_heads: HEADS,
      num_local_experts: EXPERTS,
      num_experts_per_tok: CHOSEN,
      max_position_embeddings: 256,
      rms_norm_eps: 1e-5,
      rope_theta: 10000,
      hidden_act: 'silu',
      tie_word_embeddings: false,
      bos_token_id: 0,
      eos_token_id: 1,
      torch_dtype: 'float32',
    }),
  );
  const head: Record<string, unknown> = {};
  const parts: Buffer[] = [];
  let at = 0;
  for (const [tensor, shape] of shapes(vocab_size)) {
    const data = weights(
      shape.reduce((a, n) => a * n),
      parts.length + 1,
    );
    head[tensor] = { dtype: 'F32', shape, data_offsets: [at, at + data.byteLength] };
    parts.push(Buffer.from(data.buffer));
    at += data.byteLength;
  }
  const text = Buffer.from(JSON.stringify(head));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([size, text, ...parts]));
}
