/** Converts simple schedules to cron expressions and describes them. */

export type Frequency = 'minutes' | 'hourly' | 'daily' | 'weekdays' | 'weekly' | 'cron';

export interface When {
  frequency: Frequency;
  /** Interval in minutes. */
  minutes: number;
  /** The time of day, such as 09:30; hourly schedules use its minute. */
  at: string;
  /** 0 is Sunday. */
  weekday: number;
  cron: string;
}

export const DEFAULT_WHEN: When = { frequency: 'daily', minutes: 15, at: '09:00', weekday: 1, cron: '' };
export const FREQUENCIES: [Frequency, string][] = [
  ['minutes', 'Every few minutes'],
  ['hourly', 'Every hour'],
  ['daily', 'Every day'],
  ['weekdays', 'Monday to Friday'],
  ['weekly', 'Every week'],
  ['cron', 'Cron expression'],
];
export const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'] as const;
/** Only divisors of an hour: cron restarts the interval every hour. */
export const INTERVALS = [1, 2, 3, 5, 10, 15, 20, 30] as const;

export function cronOf(when: When): string {
  const [hour, minute] = when.at.split(':').map(Number);
  if (when.frequency === 'cron') return when.cron.trim();
  if (when.frequency === 'minutes') return when.minutes === 1 ? '* * * * *' : `*/${when.minutes} * * * *`;
  if (hour === undefined || minute === undefined || Number.isNaN(hour) || Number.isNaN(minute)) return '';
  if (when.frequency === 'hourly') return `${minute} * * * *`;
  return `${minute} ${hour} * * ${when.frequency === 'weekdays' ? '1-5' : when.frequency === 'weekly' ? when.weekday : '*'}`;
}

/** Describe a simple cron expression; return any other unchanged. */
export function describeCron(cron: string): string {
  const every = /^\*(?:\/(\d+))? \* \* \* \*$/.exec(cron);
  if (every) return every[1] ? `every ${every[1]} minutes` : 'every minute';
  const found = /^(\d+) (\d+|\*) \* \* (\*|1-5|[0-6])$/.exec(cron);
  if (!found) return cron;
  const [, minute, hour, day] = found;
  if (hour === '*') return day === '*' ? `every hour at minute ${minute}` : cron;
  const at = `${hour!.padStart(2, '0')}:${minute!.padStart(2, '0')}`;
  if (day === '*') return `every day at ${at}`;
  return day === '1-5' ? `Monday to Friday at ${at}` : `every ${WEEKDAYS[Number(day)]} at ${at}`;
}
