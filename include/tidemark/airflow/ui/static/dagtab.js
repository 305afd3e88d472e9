// The tab "Checkpoints" of a DAG: the pipelines that it belongs to.

import { airflow, useAnswer } from "./ui.js";

// The pipelines that a DAG checkpoints, or that it names by its tags; null while they are loaded. Without a DAG, all.
export function usePipelines(dagId, all) {
  const own = all && dagId ? all.filter((p) => p.dag_id === dagId) : null;
  const dag = useAnswer(own && own.length === 0 ? airflow(["dags", dagId]) : null, () => 0);
  if (!all || !dagId) return all || null;
  if (own.length > 0) return own;
  if (dag.error) return [];
  const tags = dag.data && new Set(dag.data.tags.map((tag) => tag.name));
  return tags ? all.filter((p) => tags.has(p.name)) : null;
}
