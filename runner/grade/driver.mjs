// The grading program: Promptfoo's own checks over values that were computed beforehand. Started in a sandbox by promptfoo.py.
//
// Boundary: reads questions on stdin, writes answers on stdout, one JSON object a line. No network, no file, no process: the sandbox has none.
// Rules: every check is asked for by itself and a check that throws is a fault of its own, never a fail (G13). The output is only ever provider output, never a variable and never a
// prompt, so that no template sees it (PROMPTFOO_DISABLE_TEMPLATING is set as well). A rubric verdict comes from our judge as a value; no provider is ever called.
//
//   out (once)  {"ready": {"node", "promptfoo"}}
//   in          {"seq", "attempt", "output", "response": {metadata, cost, finishReason, …}, "latency_ms", "spans", "checks": [{"group", "id", …}]}
//   out         {"seq", "attempt", "results": [{"group", "id", "type", "pass", "score", "reason"} | {"group", "id", "fault"}]}
import { readFileSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const say = (value) => {
  const data = Buffer.from(JSON.stringify(value) + '\n');
  for (let at = 0; at < data.length; ) {
    at += writeSync(1, data, at);
  }
};
// Whatever Promptfoo or a check prints must not look like an answer.
process.stdout.write = process.stderr.write.bind(process.stderr);
// A check that wants to end the program has failed at being a check.
process.exit = (code) => {
  throw new Error(`a check called process.exit(${code})`);
};

// The package's CommonJS form: the same code in a third less time and 80 MB less than its ESM form.
const { assertions } = createRequire(import.meta.url)('promptfoo');
const { version } = JSON.parse(readFileSync(new URL('node_modules/promptfoo/package.json', import.meta.url), 'utf8'));
say({ ready: { node: process.version.replace(/^v/, ''), promptfoo: version } });

// A check whose value is known: Promptfoo gets a function that says it.
const known = ({ id, met, reason }) => ({
  type: 'javascript',
  metric: id,
  value: () => ({ pass: met, score: met ? 1 : 0, reason }),
});
// A criterion that our judge decided: Promptfoo gets a provider that says it.
const judged = ({ id, type, criterion, met, reason }) => ({
  type,
  metric: id,
  value: criterion,
  // A literal without any placeholder: neither output nor rubric is put into a prompt.
  rubricPrompt: 'judged beforehand',
  provider: {
    id: () => 'hermeval:judge',
    callApi: async () => ({ output: JSON.stringify({ pass: met, score: met ? 1 : 0, reason }) }),
  },
});
const listed = ({ id, assertion }) => ({ ...assertion, metric: id });
const assertionOf = (check) => (check.assertion ? listed : check.criterion === undefined ? known : judged)(check);

const run = async (check, question) => {
  const name = { group: check.group, id: check.id };
  try {
    const assertion = assertionOf(check);
    const result = await assertions.runAssertion({
      assertion,
      test: {},
      vars: {},
      latencyMs: question.latency_ms ?? undefined,
      providerResponse: { ...question.response, output: check.criterion === undefined ? question.output : '' },
      traceId: 'attempt',
      traceData: { traceId: 'attempt', spans: question.spans },
    });
    if (result?.metadata?.graderError) {
      return { ...name, fault: String(result.reason) };
    }
    if (typeof result?.pass !== 'boolean') {
      return { ...name, fault: `the check gave no verdict: ${typeof result?.pass}` };
    }
    const reason = String(result.reason ?? '');
    if (assertion.type.replace(/^not-/, '') === 'javascript' && reason.startsWith('Custom function threw error')) {
      return { ...name, fault: reason.split('\n', 1)[0] };
    }
    return { ...name, type: assertion.type, pass: result.pass, score: Number(result.score), reason };
  } catch (error) {
    return { ...name, fault: String(error?.message ?? error) };
  }
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const question = JSON.parse(line);
  const results = [];
  for (const check of question.checks) {
    results.push(await run(check, question));
  }
  say({ seq: question.seq, attempt: question.attempt, results });
}
