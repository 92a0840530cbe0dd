/** The page: a gate for the token, then everything over one host. */

import { useEffect, useState } from 'react';
import { Client, mountPath } from '../api/client';
import { forgetToken, keepToken, takeToken } from '../api/token';
import { Host, HostContext } from '../state/host';
import { goTo, parseRoute } from '../state/route';
import { useStore } from '../state/store';
import { Frame } from './frame';
import { Gate } from './gate';
import { useDensity, useTheme } from './theme';

export function App() {
  useTheme();
  useDensity();
  const [token, setToken] = useState(() => takeToken());
  const [refused, setRefused] = useState(false);
  const [asking, setAsking] = useState(token === null);
  const [byHost, setByHost] = useState(false);

  useEffect(() => {
    if (!asking) return;
    // A host that clew is a part of may know who this is, by a cookie of its own.
    const client = new Client('', mountPath());
    const known = async () => {
      const { login } = await client.call('GET /api/health');
      setByHost(login === 'host');
      if (login === 'host') await client.call('GET /api/server').then(() => setToken((given) => given ?? ''));
    };
    void known()
      .catch(() => undefined)
      .finally(() => setAsking(false));
  }, [asking]);

  useEffect(() => {
    // A link with another token, opened in a tab where the page already is.
    const onHash = (event: HashChangeEvent) => {
      if (!window.location.hash.startsWith('#token=')) return;
      setToken(takeToken());
      // Whoever had a session open there stays with it.
      goTo(parseRoute(new URL(event.oldURL || window.location.href).hash), true);
    };
    window.addEventListener('hashchange', onHash);
    return () => window.removeEventListener('hashchange', onHash);
  }, []);

  if (token === null) {
    if (asking) return null;
    return (
      <Gate
        refused={refused}
        byHost={byHost}
        onToken={(given) => {
          keepToken(given);
          setRefused(false);
          setToken(takeToken());
        }}
      />
    );
  }
  return (
    <Hosted
      key={token}
      token={token}
      onRefused={() => {
        forgetToken();
        setRefused(true);
        setToken(null);
      }}
    />
  );
}

function Hosted({ token, onRefused }: { token: string; onRefused: () => void }) {
  const [host, setHost] = useState<Host | null>(null);
  useEffect(() => {
    const made = new Host(new Client(token, mountPath()));
    made.start();
    setHost(made);
    return () => made.stop();
  }, [token]);
  return host && <Known host={host} onRefused={onRefused} />;
}

function Known({ host, onRefused }: { host: Host; onRefused: () => void }) {
  const unauthorized = useStore(host.store, (state) => state.unauthorized);
  useEffect(() => {
    if (unauthorized) onRefused();
  }, [unauthorized, onRefused]);
  return (
    <HostContext value={host}>
      <Frame />
    </HostContext>
  );
}
