// The page "Checkpoints": choose a pipeline and one of its views. The address holds the choice. As a tab of a DAG it
// has the pipelines of that DAG.

import { Actions, AddressedForm } from "./actions.js";
import { BacklogView } from "./backlog.js";
import { CheckpointView } from "./checkpoint.js";
import { Columns } from "./columns.js";
import { Compare } from "./compare.js";
import { usePipelines } from "./dagtab.js";
import { TabPanel, Tabs } from "./details.js";
import { EventTimeView } from "./eventtime.js";
import { Choice, History } from "./history.js";
import { LettersView } from "./letters.js";
import { Origin } from "./origin.js";
import { Overview } from "./overview.js";
import { NO_FILTER, tabOf, usePlace, useTitle, VIEWS } from "./place.js";
import { PublicationsView } from "./publications.js";
import { Retention } from "./retention.js";
import { Configuration } from "./settings.js";
import { Timelines } from "./timelines.js";
import { Answered, C, checkpointsOf, count, Empty, h, Inside, Loading, Name, ours, React, Trouble, useAnswer,
  useEffect, useState } from "./ui.js";
import { wordOf } from "./verdict.js";

// Until then, in ms, the view that was opened is alone with the server.
const CALM = 1000;
// Views that need the timelines.
const BRANCHED = ["overview", "history", "timelines", "compare"];

function Checkpoints({ dagId }) {
  const [place, go] = usePlace();
  const [every, setEvery] = useState(15000);
  const pipelines = useAnswer(ours(["pipelines"]), every);
  const own = usePipelines(dagId, pipelines.data);
  const missing = Boolean(pipelines.data) && !pipelines.data.some((p) => p.name === place.pipeline);
  // The address names a pipeline that does not exist yet: its first checkpoint is being planned.
  useEffect(() => setEvery(missing && place.pipeline ? 3000 : 15000), [missing, place.pipeline]);
  const facts = own && (own.find((p) => p.name === place.pipeline) || (place.pipeline ? null : own[0]));
  // The view of a pipeline that the address names asks for its answers while the list of pipelines is asked for.
  const shown = facts || (own === null && !pipelines.error && place.pipeline ? { name: place.pipeline } : null);
  useTitle(dagId ? null : `Checkpoints${shown ? ` · ${shown.name}` : ""}`);
  const choice = { facts: shown, dagId, choose: (pipeline) => go({ ...NO_FILTER, pipeline, view: tabOf(place.view),
    checkpoint: null, scope: "" }) };
  return h(C.Box, { p: 3, w: "100%", maxW: "100%", overflowX: "hidden", "data-page": "checkpoints" },
    !dagId && pipelines.error && !pipelines.data && h(C.Heading, { as: "h1", size: "lg" }, "Checkpoints"),
    h(Answered, { answer: shown && !pipelines.data ? { data: [] } : pipelines, what: "the pipelines" }, () => {
      if (shown) return h(Chosen, { ...choice, pipelines: own || [shown], place, go });
      if (own === null) return h(Loading, { what: "the DAG" });
      return own.length === 0 ? h(Nothing, { dagId }) : h(C.Box, null, h(Choices, { ...choice, pipelines: own }),
        h(Trouble, { error: { what: `There is no pipeline ${place.pipeline} that you may see`,
          next: "choose one above." } }));
    }));
}

// `facts` has no permissions while the list of pipelines, which knows them, is on its way.
const Chosen = ({ place, go, ...choice }) => h(C.Box, null,
  h(C.Flex, { gap: 3, align: "flex-start", mb: 2, wrap: "wrap" },
    h(Choices, choice),
    h(Actions, { pipeline: choice.facts.name, facts: choice.facts })),
  choice.facts.may_trigger !== undefined && h(AddressedForm, { key: `form of ${choice.facts.name}`,
    pipeline: choice.facts.name }),
  h(Pipeline, { key: choice.facts.name, facts: choice.facts, place, go }));

const Nothing = ({ dagId }) => (dagId
  ? h(Empty, { title: "No checkpoints here" },
    "Its pipeline has made no checkpoint yet, or this DAG belongs to no pipeline of Tidemark that you may see.")
  : h(C.Box, null, h(C.Heading, { as: "h1", size: "lg" }, "Checkpoints"),
    h(Empty, { title: "No pipeline has made a checkpoint yet" }, "Trigger a DAG that has ",
      h(Inside, { to: "/dags?tags=tidemark" }, "the tag tidemark"), ".")));

// On a narrow screen the menu has the word already; there the heading is for screen readers only.
const NARROW = { position: { base: "absolute", md: "static" }, clipPath: { base: "inset(50%)", md: "none" } };

// The pipeline, with the verdict of each in the list. A tab of a DAG needs neither a heading nor a link to the DAG.
// Verdicts come last: each needs the answers of a pipeline.
function Choices({ pipelines, facts, dagId, choose }) {
  const [calm, setCalm] = useState(false);
  useEffect(() => {
    const timer = setTimeout(setCalm, CALM, true);
    return () => clearTimeout(timer);
  }, []);
  const { data } = useAnswer(calm ? ours(["verdicts"]) : null, 30000);
  const state = new Map((data || []).map((p) => [p.name, p.verdict.state]));
  const words = (name) => (state.has(name) ? `${name} · ${wordOf(state.get(name))}` : name);
  return h(C.Flex, { gap: 3, align: "center", wrap: "wrap", minH: 9, w: "100%" },
    !dagId && h(C.Heading, { as: "h1", size: "lg", ...NARROW }, "Checkpoints"),
    dagId && pipelines.length === 1 && facts ? h("b", null, h(Name, null, facts.name))
      // As wide as with a verdict, which comes later: what is below must not move.
      : h(Choice, { label: "Pipeline", value: facts ? facts.name : "", onChange: choose, minW: "min(14rem, 100%)",
        options: [...(facts ? [] : [["", "choose a pipeline"]]), ...pipelines.map((p) => [p.name, words(p.name)])] }),
    facts && facts.dag_id && facts.dag_id !== dagId && h(Inside, { to: `/dags/${encodeURIComponent(facts.dag_id)}`,
      fontSize: "sm" }, "DAG ", h(Name, { most: "14rem" }, facts.dag_id)));
}

// What a view asks for is asked as soon as it is chosen, also while it waits for another answer.
function Pipeline({ facts, place, go }) {
  const pipeline = facts.name;
  const scope = place.scope || "live";
  const asks = (views, parts, query) => (views.includes(place.view) ? ours(["pipelines", pipeline, ...parts], query)
    : null);
  const answer = useAnswer(place.view === "overview" ? checkpointsOf(pipeline, { limit: 0, scope }) : null, 5000);
  const series = useAnswer(asks(["overview"], ["checkpoints", "series"], { last: 200, scope }), 15000);
  const tree = useAnswer(asks(BRANCHED, ["timelines"]), 15000);
  const config = useAnswer(asks(["origin"], ["checkpoints", "config"]), 0);
  const part = tabOf(place.view);
  return h(C.Box, null,
    h(Tabs, { name: "Views", parts: VIEWS, part, setPart: (view) => go({ pipeline, view, checkpoint: null }) }),
    h(TabPanel, { parts: VIEWS, part }, h(View, { facts, place, go, answer, series, tree, config })));
}

function View({ facts, place, go, answer, series, tree, config }) {
  const pipeline = facts.name;
  // The last checkpoint that was open: the history focuses its row.
  const [left, setLeft] = useState(null);
  useEffect(() => (tabOf(place.view) === "history" ? undefined : setLeft(null)), [place.view]);
  const open = (checkpoint) => {
    setLeft(checkpoint);
    go({ pipeline, view: "checkpoint", checkpoint });
  };
  const compare = (left, right) => go({ pipeline, view: "compare", checkpoint: null, left, right });
  return h(React.Fragment, null,
    place.view === "overview" && h(Answered, { answer, what: "the checkpoints" },
      (data) => h(C.Box, null, h(Reading, data), h(Overview, { data, series, facts, timelines: tree.data || [],
        scope: place.scope, onScope: (scope) => go({ pipeline, scope }), onCheckpoint: open }))),
    // The address names a timeline that does not exist.
    place.view === "overview" && place.scope && answer.error && answer.data === undefined && h(C.Button, { size: "xs",
      variant: "outline", onClick: () => go({ pipeline, scope: "" }) }, "Show the live timeline"),
    place.view === "history" && h(History, { pipeline, place, left, onChoose: open, timelines: tree.data || [],
      change: (part) => go({ pipeline, ...part }, { replace: true }) }),
    place.view === "checkpoint" && h(CheckpointView, { key: place.checkpoint, pipeline, facts,
      checkpoint: place.checkpoint, onCheckpoint: open, onCompare: compare,
      onHistory: () => go({ pipeline, view: "history", checkpoint: null }) }),
    place.view === "timelines" && h(Timelines, { pipeline, facts, answer: tree, onCheckpoint: open,
      onCompare: compare }),
    place.view === "retention" && h(Retention, { pipeline, facts }),
    place.view === "compare" && h(Compare, { pipeline, facts, tree, place, onCheckpoint: open, onCompare: compare }),
    place.view === "origin" && h(Answered, { answer: config, what: "the operators" },
      (data) => h(Origin, { pipeline, facts, operators: data.operators, place, onCheckpoint: open,
        change: (part) => go({ pipeline, view: "origin", ...part }) })),
    place.view === "columns" && h(Columns, { key: place.checkpoint, pipeline, column: place.column,
      checkpoint: place.checkpoint, onCheckpoint: open, go: (part) => go({ pipeline, ...part }) }),
    place.view === "letters" && h(LettersView, { pipeline, facts, place,
      change: (part) => go({ pipeline, ...part }) }),
    place.view === "publications" && h(PublicationsView, { pipeline, place,
      change: (part) => go({ pipeline, ...part }) }),
    place.view === "time" && h(EventTimeView, { pipeline, place, change: (part) => go({ pipeline, ...part }) }),
    place.view === "backlog" && h(BacklogView, { pipeline, onOverview: () => go({ pipeline, view: "overview" }) }),
    place.view === "configuration" && h(Configuration, { pipeline, facts }));
}

const Reading = ({ indexed }) => (indexed.read < indexed.of
  ? h(C.Text, { role: "status", fontSize: "sm", color: "fg.muted", mb: 2 },
    `Reading manifests: ${count(indexed.read)} of ${count(indexed.of)}; counts and sums are of these.`)
  : null);

globalThis.Checkpoints = Checkpoints;
// Airflow draws a bundle that it has loaded as a lazy component, and at its next navigation as this one, which would
// mount the page again and close what is open. So the first navigation is one to the same place, before the page shows.
dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
