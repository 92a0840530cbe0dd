/** The page: a gate for the token, then everything over one host. */

import { useEffect, useState } from 'react';
import { Client, mountPath } from '../api/client';
import { forgetToken, keepToken, takeToken } from '../api/token';
import { Host, HostContext } from '../state/host';
import { useStore } from '../state/store';
import { Frame } from './frame';
import { Gate } from './gate';
import { useDensity, useTheme } from './theme';

export function App() {
  useTheme();
  useDensity();
  const [token, setToken] = useState(() => takeToken());
  const [refused, setRefused] = useState(false);

  useEffect(() => {
    // A link with another token, opened in a tab where the page already is.
    const onHash = () => window.location.hash.startsWith('#token=') && setToken(takeToken());
    window.addEventListener('hashchange', onHash);
    return () => window.removeEventListener('hashchange', onHash);
  }, []);

  if (token === null) {
    return (
      <Gate
        refused={refused}
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
