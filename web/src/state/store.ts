/** A value that components can subscribe to. */

import { useSyncExternalStore } from 'react';

export class Store<T extends object> {
  private readonly listeners = new Set<() => void>();

  constructor(private value: T) {}

  readonly get = (): T => this.value;

  set(change: Partial<T> | ((value: T) => Partial<T>)): void {
    const patch = typeof change === 'function' ? change(this.value) : change;
    const keys = Object.keys(patch) as (keyof T)[];
    if (keys.every((key) => Object.is(this.value[key], patch[key]))) return;
    this.value = { ...this.value, ...patch };
    for (const listener of [...this.listeners]) listener();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

/** Return the selected part of the store. `select` must return the same value as long as nothing changed. */
export function useStore<T extends object, S>(store: Store<T>, select: (value: T) => S): S {
  return useSyncExternalStore(store.subscribe, () => select(store.get()));
}
