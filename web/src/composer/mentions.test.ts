import { expect, test } from 'vitest';
import { fileCompletions, mentionAt, mentionsIn } from './mentions';

test('a name is completed after an @ at a word start, at the caret', () => {
  expect([mentionAt('look at @src/a', 14), mentionAt('look at @src/a', 9), mentionAt('me@home', 7), mentionAt('no', 2)]).toEqual([{ typed: 'src/a', from: 9 }, { typed: '', from: 9 }, null, null]);
  expect(mentionAt("see @'my no", 11)).toEqual({ typed: 'my no', from: 5 });
  const [one] = fileCompletions('see @ap and more', 7, ['src/app.py']);
  expect([one!.text, one!.caret]).toEqual(['see @src/app.py and more', 16]);
  expect(fileCompletions("see @'my n, more", 10, ['my notes.txt'])[0]!.text).toBe("see @'my notes.txt' , more");
  expect(fileCompletions('see ap', 6, ['src/app.py'])).toEqual([]);
});

test('mentions are found with and without trailing punctuation', () => {
  expect(mentionsIn("see @a.py, and (@b) or mail me@x.org and @a.py, or @'my notes.txt'.")).toEqual([['a.py,', 'a.py'], ['my notes.txt']]);
  expect(mentionsIn('nothing')).toEqual([]);
  expect(mentionsIn(Array.from({ length: 50 }, (_, n) => `@f${n}`).join(' ')).length).toBe(10);
});
