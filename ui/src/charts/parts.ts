// Classifies components by kind of work, with one colour per kind in all charts.
import type { ComponentStat, TreeNode } from '../api/types';
import { colours } from './theme';

export type Part = 'attention' | 'mlp' | 'norm' | 'other';

export const PART_LABEL: Record<Part, string> = {
  attention: 'Attention',
  mlp: 'MLP',
  norm: 'Norms',
  other: 'Other',
};

const ATTENTION =
  /^(q_proj|k_proj|v_proj|o_proj|qkv_proj|q_[ab]_proj|[kv]_b_proj|attention|attn|in_proj|conv|delta_rule|scan|ssm_|out_proj|output_gate|dense|rope|rotary|kv_)/;
const MLP =
  /^(gate_proj|up_proj|gate_up_proj|down_proj|act|fc\d|w[123]$|(in|out)put_linear|mlp|router|experts?|shared_expert)/;
const NORM = /norm/;

/** The last of steps that were computed together ("input_layernorm+qkv_proj") decides. */
export function partOf(steps: string): Part {
  const component = steps.slice(steps.lastIndexOf('+') + 1);
  if (NORM.test(component)) return 'norm';
  if (ATTENTION.test(component)) return 'attention';
  return MLP.test(component) ? 'mlp' : 'other';
}

/** For ambiguous names the server's classification takes precedence; norms are distinguished here. */
export function partOfStat(c: ComponentStat): Part {
  return partOf(c.component_name) === 'norm' ? 'norm' : c.part;
}

let cached: { key: string; map: Record<Part, string> } | null = null;

export function partColour(part: Part): string {
  const key = colours().surface;
  if (cached?.key !== key) {
    const style = getComputedStyle(document.documentElement);
    const v = (p: string) => style.getPropertyValue(`--part-${p}`).trim();
    cached = {
      key,
      map: { attention: v('attention'), mlp: v('mlp'), norm: v('norm'), other: v('other') },
    };
  }
  return cached.map[part];
}

/** Colour key of a node of the energy tree: its kind of work, or above layers its phase. */
export function nodePart(node: TreeNode, parents: TreeNode[]): Part | null {
  if (node.kind === 'component') return partOf(node.name);
  if (node.kind === 'operation') {
    const c = parents.findLast((p) => p.kind === 'component');
    return c ? partOf(c.name) : 'other';
  }
  return null;
}
