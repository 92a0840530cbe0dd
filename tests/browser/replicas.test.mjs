/** Three replicas on one PostgreSQL: a page of one of them shows what the others do. */
import { startCluster, test } from "./kit.mjs";
import { answers, newSession, openSession, own } from "./talk.mjs";

test("a page of one replica shows a run of another, and goes on when a third is told that it may", async () => {
  const [shows, runs, answered] = await startCluster();
  const session = await newSession(runs, "demo/tools", { workspace_root: runs.folder });
  const page = await openSession(shows, session.id);
  await runs.call("POST", `/api/sessions/${session.id}/prompt`, { text: "!bash echo across" });
  await own(page).getByText("!bash echo across").waitFor();
  const asking = page.getByRole("group", { name: "Approve this command?" });
  await asking.waitFor();
  await answered.call("POST", `/api/sessions/${session.id}/approvals`, { decision: "once" });
  await answers(page).getByText(/^bash \w+: across/).waitFor();
  await asking.waitFor({ state: "detached" });
});
