import './no_eval';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import './app.css';
import { App } from './frame/app';
import { Boundary } from './ui/boundary';

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <Boundary what="The page">
      <App />
    </Boundary>
  </StrictMode>,
);
