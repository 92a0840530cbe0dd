/** The page: a login form, then the app over one host. */

import { useEffect, useState } from 'react';
import { Client, mountPath } from '../api/client';
import { clearToken, saveToken, loadToken } from '../api/token';
import { Host, HostContext } from '../state/host';
import { goTo, parseRoute } from '../state/route';
import { useStore } from '../state/store';
import { Frame } from './frame';
import { LoginForm } from './login_form';
import { useDensity, useTheme } from './theme';

export function App() {
  useTheme();
  useDensity();
  const [token, setToken] = useState(() => loadToken());
  const [refused, setRefused] = useState(false);
  const [asking, setAsking] = useState(token === null);
  const [byHost, setByHost] = useState(false);

  useEffect(() => {
    if (!asking) return;
    // An application that embeds clew may identify the user by its own cookie.
    const client = new Client('', mountPath());
    const known = async () => {
      const { login } = await client.call('GET /api/health');
      setByHost(login === 'host');
      if (login === 'host') await client.call('GET /api/server').then(() => setToken((current) => current ?? ''));
    };
    void known()
      .catch(() => undefined)
      .finally(() => setAsking(false));
  }, [asking]);

  useEffect(() => {
    // A link with another token was opened in this tab.
    const onHash = (event: HashChangeEvent) => {
      if (!window.location.hash.startsWith('#token=')) return;
      setToken(loadToken());
      // Stay in the open session.
      goTo(parseRoute(new URL(event.oldURL || window.location.href).hash), true);
    };
    window.addEventListener('hashchange', onHash);
    return () => window.removeEventListener('hashchange', onHash);
  }, []);

  if (token === null) {
    if (asking) return null;
    return (
      <LoginForm
        refused={refused}
        byHost={byHost}
        onToken={(entered) => {
          saveToken(entered);
          setRefused(false);
          setToken(loadToken());
        }}
      />
    );
  }
  return (
    <Hosted
      key={token}
      token={token}
      onRefused={() => {
        clearToken();
        setRefused(true);
        setToken(null);
      }}
    />
  );
}

function Hosted({ token, onRefused }: { token: string; onRefused: () => void }) {
  const [host, setHost] = useState<Host | null>(null);
  useEffect(() => {
    const created = new Host(new Client(token, mountPath()));
    created.start();
    setHost(created);
    return () => created.stop();
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
