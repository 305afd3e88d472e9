// The actions that the user may start for a pipeline, each with its DAG: one request, which all buttons share.

import { ask, CHANGED, ours, useEffect, useState } from "./ui.js";

const FRESH = 15000;
const asked = new Map();

export const forget = (pipeline) => asked.delete(pipeline);

function look(pipeline) {
  const known = asked.get(pipeline);
  if (known && Date.now() - known.at < FRESH) return known.answer;
  const answer = ask(ours(["pipelines", pipeline, "actions"])).then(named);
  asked.set(pipeline, { at: Date.now(), answer });
  answer.catch(() => forget(pipeline));
  return answer;
}

const named = (data) => ({ mayDispose: data.may_dispose, ...Object.fromEntries(Object.entries(data.dags).map(([kind,
  dag]) => [kind, { id: dag.dag_id, paused: dag.is_paused, mayUnpause: dag.may_unpause }])) });

// {checkpoint: {id, paused, mayUnpause}, …, mayDispose}; null until it is loaded, {error} if it cannot be.
export function useDags(pipeline) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let gone = false;
    // What is known stays while Airflow does not answer.
    const again = () => look(pipeline).then((dags) => !gone && setFound(dags),
      (error) => !gone && setFound((known) => (known && !error.status ? known : { error })));
    const refresh = () => {
      forget(pipeline);
      again();
    };
    setFound(null);
    again();
    addEventListener(CHANGED, refresh);
    return () => {
      gone = true;
      removeEventListener(CHANGED, refresh);
    };
  }, [pipeline]);
  return found;
}
