import { afterEach, expect, test, vi } from 'vitest';
import type { Client } from '../api/client';
import type { Message, Session } from '../api/types';
import { Conversation } from '../state/conversation';
import { chooseFiles, filesBody, KEEP, restoredText } from './choose_files';

const FILE = { path: 'app.py', kind: 'modified' as const, added: 1, removed: 1, conflict: false };
const MESSAGE = { id: 'msg_1', role: 'user', parts: [], metadata: { snapshot_id: 'snp_1' } } as unknown as Message;

function opened(answers: Record<string, unknown>, { folder = '/work' as string | null, message = MESSAGE } = {}) {
  const asked: string[] = [];
  const call = async (operation: string) => {
    asked.push(operation.split('/').at(-1)!);
    const found = answers[operation];
    if (found instanceof Error) throw found;
    return found;
  };
  const conversation = new Conversation('ses_1', { call } as unknown as Client);
  conversation.store.set({ session: { workspace_root: folder, parent_id: null } as Session, messages: [message] });
  return { conversation, asked };
}

const CHANGES = 'GET /api/sessions/{id}/changes';
const PREVIEW = 'GET /api/sessions/{id}/restore';
const rewind = { kind: 'rewind', messageId: 'msg_1' } as const;

afterEach(() => vi.restoreAllMocks());

test('a person is asked where files would change, and the answer is returned', async () => {
  const { conversation } = opened({ [CHANGES]: { files: [FILE] }, [PREVIEW]: { snapshot_id: 'snp_1', files: [FILE] } });
  const choice = chooseFiles(conversation, rewind);
  await vi.waitFor(() => expect(conversation.store.get().question?.kind).toBe('rewind'));
  conversation.store.get().question!.answer({ files: 'restore', paths: ['app.py'] });
  expect(await choice).toEqual({ files: 'restore', paths: ['app.py'] });
  expect(conversation.store.get().question).toBeNull();
});

test('nothing is asked without a folder, a snapshot, a changed file or an answer of the server', async () => {
  const same = { [CHANGES]: { files: [] }, [PREVIEW]: { files: [] } };
  for (const [answers, more, asked] of [
    [same, { folder: null }, []],
    [same, { message: { ...MESSAGE, metadata: {} } }, []],
    [{ [CHANGES]: { files: [], failed: 'a home folder' } }, {}, ['changes']],
    [same, {}, ['changes', 'restore']],
    [{ ...same, [PREVIEW]: new Error('no snapshot') }, {}, ['changes', 'restore']],
  ] as const) {
    const made = opened(answers, more);
    expect([await chooseFiles(made.conversation, rewind), made.asked]).toEqual([KEEP, asked]);
  }
});

test('a new question cancels the one before', async () => {
  const { conversation } = opened({ [CHANGES]: { files: [FILE] }, [PREVIEW]: { snapshot_id: 'snp_1', files: [FILE] } });
  const first = chooseFiles(conversation, rewind);
  await vi.waitFor(() => expect(conversation.store.get().question).not.toBeNull());
  void chooseFiles(conversation, rewind);
  expect(await first).toBeNull();
});

test('a request names the files only where they are restored', () => {
  expect([KEEP, { files: 'only' as const, paths: [] }, { files: 'restore' as const, paths: ['a'] }].map(filesBody)).toEqual([{}, { files: 'only' }, { files: 'restore', paths: ['a'] }]);
});

test('the result names what was restored, what was left alone and what is uncertain', () => {
  expect(restoredText({ snapshot_id: 's', restored: [] })).toBe('No files restored.');
  expect(restoredText({ snapshot_id: 's', restored: ['a', 'b', 'c', 'd'], conflicts: ['e'], unsure: ['f'] })).toBe(
    'Restored a, b and 2 more files. Left alone, changed by someone else: e. Check f: the snapshot was taken while a command was running.',
  );
});
