// Actions: buttons, and the form that the address names. Most trigger a DAG, with your permissions.

import { BranchForm } from "./branch_actions.js";
import { FormDialog } from "./confirmed.js";
import { useDags } from "./dags.js";
import { AbortForm, BackfillForm, CheckpointForm, DisposalForm, ForkForm, RedriveForm, RestoreForm, RetentionForm,
  SavepointForm, WithdrawalForm } from "./forms.js";
import { useForm } from "./place.js";
import { beginningOf } from "./restorepoint.js";
import { PatchForm, TransformForm } from "./state_forms.js";
import { C, h, Trouble } from "./ui.js";

export { useDags };

const FORMS = { checkpoint: CheckpointForm, savepoint: SavepointForm, restore: RestoreForm, fork: ForkForm,
  backfill: BackfillForm, redrive: RedriveForm, retention: RetentionForm, dispose: DisposalForm, abort: AbortForm,
  promote: BranchForm, close: BranchForm, transform: TransformForm, patch: PatchForm, withdraw: WithdrawalForm };
// Forms that need no DAG, and those that show a command where there is none.
const BARE = ["dispose", "abort", "withdraw"];
const BRANCH = ["promote", "close"];
const AT_A_POINT = ["backfill", "transform", "patch"];

// The buttons of a checkpoint; without one, those of the pipeline. Their space is kept while they are looked up, in
// a row of its own: nothing moves when they come.
export function Actions({ pipeline, facts, checkpoint }) {
  const dags = useDags(pipeline);
  const { form, open } = useForm();
  if (facts.may_trigger === undefined) return h(C.Flex, { minH: 9, w: "100%" });
  if (!facts.may_trigger) return null;
  if (dags && dags.error) return h(Trouble, { error: dags.error });
  const all = [
    ["checkpoint", "Checkpoint now", !checkpoint],
    ["savepoint", "Create savepoint…", true],
    ["restore", "Restore…", true],
    ["fork", "Fork…", true],
    ["backfill", "Backfill from here…", Boolean(checkpoint)],
    ["transform", "Transform…", Boolean(checkpoint)],
    ["patch", "Patch…", Boolean(checkpoint)],
    ["redrive", "Redrive dead letters…", !checkpoint],
  ].filter(([kind, , fits]) => fits && (dags === null || dags[kind]));
  if (all.length === 0) return null;
  // On a narrow screen the buttons of the pipeline are a strip that scrolls sideways, as its tabs.
  return h(C.Flex, { gap: 2, wrap: { base: checkpoint ? "wrap" : "nowrap", md: "wrap" }, align: "center", minH: 9,
    w: "100%", overflowX: "auto", role: "group",
    "aria-label": "Actions", visibility: dags === null ? "hidden" : "visible" },
    all.map(([kind, word]) => h(C.Button, {
      key: kind, size: "xs", flexShrink: 0, variant: kind === "checkpoint" ? "solid" : "outline", colorPalette: "brand",
      "aria-haspopup": "dialog", "aria-expanded": form === kind, disabled: dags === null,
      onClick: () => open(kind, checkpoint ? `chk-${checkpoint}` : null),
    }, word)));
}

// The form that the address names; a link with form=restore&from=chk-16 opens it.
export function AddressedForm({ pipeline }) {
  const dags = useDags(pipeline);
  const { form, from, close } = useForm();
  if (!form || dags === null) return null;
  return h(Action, { key: `${form} ${from}`, pipeline, dags, kind: form, from,
    begins: beginningOf(from), close });
}

// A form; `begins` is {checkpoint}, {savepoint} or {}.
export function Action({ pipeline, dags, kind, from, begins, close }) {
  const form = Object.hasOwn(FORMS, kind) ? FORMS[kind] : null;
  const may = BARE.includes(kind) ? dags.mayDispose : BRANCH.includes(kind) || dags[kind];
  const incomplete = needs(kind, begins, from);
  if (form && may && !incomplete) return h(form, { pipeline, name: kind, from, begins, dag: dags[kind], close });
  if (!kind) return null;
  const title = dags.error ? "Not available" : !form ? "No such form" : incomplete ? "Incomplete address"
    : "No permission";
  return h(FormDialog, { title, name: "none", close }, h(Trouble, { error: dags.error || {
    what: !form ? "The address names no form of this page" : incomplete || "You may not do this here",
    next: form && !incomplete ? "ask for the right to trigger the DAG, or for a DAG of this kind." : "" } }));
}

function needs(kind, begins, from) {
  if (BRANCH.includes(kind) && !from) return "The address names no timeline";
  if (kind === "withdraw" && !from) return "The address names no request";
  if (kind === "dispose" && !begins.savepoint) return "The address names no savepoint";
  if (kind === "abort" && !begins.checkpoint) return "The address names no checkpoint";
  return AT_A_POINT.includes(kind) && !begins.checkpoint && !begins.savepoint
    ? "The address names no restore point" : "";
}

// Disposes of a savepoint, for pages that open the form themselves.
export const Disposal = ({ pipeline, name, close }) => h(DisposalForm, { pipeline, begins: { savepoint: name },
  close });
