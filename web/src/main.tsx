import './no_eval';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import './app.css';
import { App } from './frame/app';
import { ErrorBoundary } from './ui/error_boundary';

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <ErrorBoundary name="The page">
      <App />
    </ErrorBoundary>
  </StrictMode>,
);
