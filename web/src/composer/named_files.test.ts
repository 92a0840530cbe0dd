import { expect, test } from 'vitest';
import { fileCompletions, nameAt, namesIn } from './named_files';

test('a name is completed behind an @ that begins a word, where the caret is', () => {
  expect([nameAt('look at @src/a', 14), nameAt('look at @src/a', 9), nameAt('me@home', 7), nameAt('no', 2)]).toEqual([{ typed: 'src/a', from: 9 }, { typed: '', from: 9 }, null, null]);
  expect(nameAt("see @'my no", 11)).toEqual({ typed: 'my no', from: 5 });
  const [one] = fileCompletions('see @ap and more', 7, ['src/app.py']);
  expect([one!.text, one!.caret]).toEqual(['see @src/app.py and more', 16]);
  expect(fileCompletions("see @'my n, more", 10, ['my notes.txt'])[0]!.text).toBe("see @'my notes.txt' , more");
  expect(fileCompletions('see ap', 6, ['src/app.py'])).toEqual([]);
});

test('names in a text are looked for with and without the sign that ends a sentence', () => {
  expect(namesIn("see @a.py, and (@b) or mail me@x.org and @a.py, or @'my notes.txt'.")).toEqual([['a.py,', 'a.py'], ['my notes.txt']]);
  expect(namesIn('nothing')).toEqual([]);
  expect(namesIn(Array.from({ length: 50 }, (_, n) => `@f${n}`).join(' ')).length).toBe(10);
});
