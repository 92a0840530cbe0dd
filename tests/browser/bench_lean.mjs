import { chromium } from "playwright-core";
import { startServer } from "./kit.mjs";
import { readdirSync, readFileSync } from "node:fs";
const tick=100;
function tree(root){ const ps={}; for(const d of readdirSync("/proc")) if(/^\d+$/.test(d)) try{ const s=readFileSync(`/proc/${d}/stat`,"utf8"); const r=s.slice(s.lastIndexOf(")")+2).split(" "); ps[d]={pp:r[1],t:+r[11]+ +r[12], c:+r[13]+ +r[14]}; }catch{} 
 const want=new Set([String(root)]); let ch=true; while(ch){ch=false; for(const k in ps) if(!want.has(k)&&want.has(ps[k].pp)){want.add(k);ch=true;}}
 let s=0; for(const k of want) if(ps[k]) s+=ps[k].t+ps[k].c; return s/tick; }
const server = await startServer();
const dis="AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch";
const base=["--headless","--no-sandbox","--disable-gpu","--disable-quic","--no-first-run","--disable-background-networking","--disable-component-update","--disable-sync","--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"];
const variants={
 base:[...base],
 spare:[...base,`--disable-features=${dis},SpareRendererForSitePerProcess`],
 iso:[...base,"--disable-site-isolation-trials",`--disable-features=${dis},SpareRendererForSitePerProcess,IsolateOrigins,site-per-process`],
 ipgpu:[...base,"--in-process-gpu",`--disable-features=${dis},SpareRendererForSitePerProcess`],
 nogl:[...base,"--disable-software-rasterizer",`--disable-features=${dis},SpareRendererForSitePerProcess`],
};
const exe=process.env.EXE||process.env.CLEW_CHROMIUM;
const which=process.argv.slice(2);
async function one(name, reuse){
  const browser=await chromium.launch({executablePath:exe,args:variants[name],headless:true});
  let shared;
  const go=async()=>{ let context=reuse? (shared??=await browser.newContext({viewport:{width:1280,height:800},reducedMotion:"reduce"})) : await browser.newContext({viewport:{width:1280,height:800},reducedMotion:"reduce"});
   const page=await context.newPage(); await page.goto(server.address); await page.getByRole("textbox").first().waitFor(); await page.waitForTimeout(300);
   if(reuse){await context.clearCookies(); await page.close();} else await context.close(); };
  await go();
  const a=tree(process.pid), t=performance.now(); for(let i=0;i<8;i++) await go();
  console.log(name, reuse?"reuse":"", "cpu/open", ((tree(process.pid)-a)/8).toFixed(3), "wall/open", ((performance.now()-t)/8).toFixed(0));
  await browser.close();
}
for(const w of which){ const [n,r]=w.split(":"); await one(n,!!r); }
await server.stop(); process.exit(0);
