import { expect, test } from 'vitest';
import { fileCompletions, nameAt, namesIn } from './named_files';

test('a name is completed behind an @ that begins a word, where the caret is', () => {
  expect([nameAt('look at @src/a', 14), nameAt('look at @src/a', 9), nameAt('me@home', 7), nameAt('no', 2)]).toEqual(['src/a', '', null, null]);
  const [one] = fileCompletions('see @ap and more', 7, ['src/app.py']);
  expect([one!.text, one!.caret]).toEqual(['see @src/app.py and more', 16]);
  expect(fileCompletions('see ap', 6, ['src/app.py'])).toEqual([]);
});

test('names in a text are looked for with and without the sign that ends a sentence', () => {
  expect(namesIn('see @a.py, and (@b) or mail me@x.org and @a.py,')).toEqual(['a.py,', 'a.py']);
  expect(namesIn('nothing')).toEqual([]);
});
