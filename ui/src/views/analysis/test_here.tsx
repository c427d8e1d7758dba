// "Test it here": runs the experiment of an advice and shows its proof in the advice.
import { useSignal } from '@preact/signals';
import { api } from '../../api/client';
import type { Advice, Summary } from '../../api/types';
import { capital, count } from '../../core/format';
import { Icon } from '../../parts/icon';
import { Sentence } from '../../parts/notice';
import { experiment } from '../../state/live';
import { useResource } from '../../state/resource';
import { follow, href } from '../../state/selection';
import { cellsOf } from '../experiments/form';
import { planOfCommand, proofOf, testName } from './test_plan';

type Finding = Advice['findings'][number];

const LOOK_AGAIN_MS = 1500;

/** The test of one finding. `stored`: whether an experiment of its name is there. */
export function TestHere(props: {
  s: Summary;
  rule: string;
  finding: Finding | null;
  stored: boolean;
}) {
  const { s, rule, finding, stored } = props;
  const name = testName(rule, s.id);
  const plan = planOfCommand(finding?.test ?? null, name);
  const begun = useSignal(false);
  const error = useSignal<string | null>(null);
  const there = stored || begun.value;
  const news = experiment.value?.name === name ? experiment.value : null;
  const turn = useSignal(0);
  const res = useResource(
    there ? `test ${name} ${news?.state} ${news?.done} ${turn.value}` : null,
    async (x) => {
      const d = await api.experiment(name, x);
      // Live news may be missed; a running test is looked at again.
      if (d.state === 'running' || d.state === 'queued')
        setTimeout(() => {
          turn.value++;
        }, LOOK_AGAIN_MS);
      return d;
    },
  );
  if (!plan && !there) return null;
  const d = res.value.data;
  const proof = d ? proofOf(d, finding, s) : null;
  const start = async (more: boolean) => {
    error.value = null;
    try {
      if (more) await api.resumeExperiment(name, true);
      else if (plan) await api.beginExperiment(plan);
      begun.value = true;
      turn.value++;
    } catch (e) {
      error.value = capital(e instanceof Error ? e.message : String(e));
    }
  };
  const to = { view: 'experiments' as const, experiment: name };
  return (
    <span class="test-here row" data-outcome={proof?.outcome ?? 'none'}>
      {!there && plan && (
        <button type="button" class="btn small" onClick={() => void start(false)}>
          <Icon name="play" /> Test it here, {count(cellsOf(plan) * (plan.repeat ?? 5))} runs
        </button>
      )}
      {proof && (
        <strong class={`proof ${proof.outcome}`} role="status">
          {proof.outcome === 'running' ? `Testing: ${proof.text}` : capital(proof.text)}
        </strong>
      )}
      {proof && /open|failed/.test(proof.outcome) && (
        <button type="button" class="btn small" onClick={() => void start(true)}>
          More runs
        </button>
      )}
      {there && (
        <a href={href(to)} onClick={(e) => follow(e, 'experiments', { experiment: name })}>
          The experiment
        </a>
      )}
      {error.value && (
        <span class="bad" role="alert">
          <Sentence text={error.value} />
        </span>
      )}
    </span>
  );
}

/** Names of the stored experiments, to find the tests of a run's advice again. */
export function useTests(wanted: boolean): ReadonlySet<string> {
  const list = useResource(wanted ? 'experiments of tests' : null, (x) => api.experiments(x)).value;
  return new Set((list.data ?? []).map((e) => e.name));
}
