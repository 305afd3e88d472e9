// The page "Checkpoints": choose a pipeline and one of five views. The address holds the choice.

import { Actions } from "./actions.js";
import { CheckpointView } from "./checkpoint.js";
import { TabPanel, Tabs } from "./details.js";
import { Choice, History } from "./history.js";
import { Origin } from "./origin.js";
import { Overview } from "./overview.js";
import { NO_FILTER, tabOf, usePlace, VIEWS } from "./place.js";
import { Configuration } from "./settings.js";
import { Timelines } from "./timelines.js";
import { Answered, C, count, Empty, h, Inside, Name, ours, React, Trouble, useAnswer, useEffect,
  useState } from "./ui.js";

function Checkpoints() {
  const [place, go] = usePlace();
  const [every, setEvery] = useState(15000);
  const pipelines = useAnswer(ours(["pipelines"]), every);
  const missing = Boolean(pipelines.data) && !pipelines.data.some((p) => p.name === place.pipeline);
  // The address names a pipeline that does not exist yet: its first checkpoint is being planned.
  useEffect(() => setEvery(missing && place.pipeline ? 3000 : 15000), [missing, place.pipeline]);
  const title = h(C.Heading, { as: "h1", size: "lg" }, "Checkpoints");
  return h(C.Box, { p: 3, w: "100%", maxW: "100%", overflowX: "hidden", "data-page": "checkpoints" },
    h(Answered, { answer: pipelines, what: "the pipelines" }, (data) => {
      if (data.length === 0) {
        return h(C.Box, null, title, h(Empty, { title: "No pipeline has made a checkpoint yet" },
          "Trigger a DAG that is tagged tidemark, or type: tidemark run PIPELINE."));
      }
      const facts = data.find((p) => p.name === place.pipeline) || (place.pipeline ? null : data[0]);
      return h(C.Box, null,
        h(C.Flex, { gap: 3, align: "flex-start", mb: 2, wrap: "wrap" },
          h(C.Flex, { gap: 3, align: "center", wrap: "wrap", minH: 9 },
            title,
            h(Choice, { label: "Pipeline", value: facts ? facts.name : "",
              onChange: (pipeline) => go({ ...NO_FILTER, pipeline, view: tabOf(place.view), checkpoint: null }),
              options: [...(facts ? [] : [["", "choose a pipeline"]]), ...data.map((p) => [p.name, p.name])] }),
            facts && facts.dag_id && h(Inside, { to: `/dags/${encodeURIComponent(facts.dag_id)}`, fontSize: "sm" },
              "DAG ", h(Name, { most: "14rem" }, facts.dag_id))),
          facts && h(Actions, { pipeline: facts.name, facts })),
        facts === null
          ? h(Trouble, { error: { what: `There is no pipeline ${place.pipeline} that you may see`,
            next: "Choose one above." } })
          : h(Pipeline, { key: facts.name, facts, place, go }));
    }));
}

function Pipeline({ facts, place, go }) {
  const pipeline = facts.name;
  const answer = useAnswer(ours(["pipelines", pipeline, "checkpoints"], { limit: 0 }), 5000);
  const tree = useAnswer(ours(["pipelines", pipeline, "timelines"]), 15000);
  const config = useAnswer(place.view === "origin" ? ours(["pipelines", pipeline, "checkpoints", "config"]) : null,
    0);
  const part = tabOf(place.view);
  return h(C.Box, null,
    h(Tabs, { name: "Views", parts: VIEWS, part, setPart: (view) => go({ pipeline, view, checkpoint: null }) }),
    h(TabPanel, { parts: VIEWS, part }, h(View, { facts, place, go, answer, tree, config })));
}

function View({ facts, place, go, answer, tree, config }) {
  const pipeline = facts.name;
  // The last checkpoint that was open: the history focuses its row.
  const [left, setLeft] = useState(null);
  useEffect(() => (tabOf(place.view) === "history" ? undefined : setLeft(null)), [place.view]);
  const open = (checkpoint) => {
    setLeft(checkpoint);
    go({ pipeline, view: "checkpoint", checkpoint });
  };
  return h(React.Fragment, null,
    place.view === "overview" && h(Answered, { answer, what: "the checkpoints" },
      (data) => h(C.Box, null, h(Reading, data), h(Overview, { data, facts, onCheckpoint: open }))),
    place.view === "history" && h(History, { pipeline, place, left, onChoose: open, timelines: tree.data || [],
      change: (part) => go({ pipeline, ...part }, { replace: true }) }),
    place.view === "checkpoint" && h(CheckpointView, { key: place.checkpoint, pipeline, facts,
      checkpoint: place.checkpoint, onCheckpoint: open,
      onHistory: () => go({ pipeline, view: "history", checkpoint: null }) }),
    place.view === "timelines" && h(Answered, { answer: tree, what: "the timelines" },
      (data) => h(Timelines, { pipeline, facts, tree: data, onCheckpoint: open })),
    place.view === "origin" && h(Answered, { answer: config, what: "the operators" },
      (data) => h(Origin, { pipeline, dag: facts.dag_id, operators: data.operators, onCheckpoint: open })),
    place.view === "configuration" && h(Configuration, { pipeline }));
}

const Reading = ({ indexed }) => (indexed.read < indexed.of
  ? h(C.Text, { role: "status", fontSize: "sm", color: "fg.muted", mb: 2 },
    `Reading manifests: ${count(indexed.read)} of ${count(indexed.of)}; counts and sums are of these.`)
  : null);

globalThis.Checkpoints = Checkpoints;
