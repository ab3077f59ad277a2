//! How a page looks: on a screen by day and by night, and on paper.

/// Style sheet of a page.
pub(super) const STYLE: &str = r#"
:root{--back:#fff;--text:#1a1d21;--soft:#5b636d;--rule:#d5dae0;--grid:#e6e9ed;--panel:#f6f7f9;--accent:#0b5cad;
--c0:#0068a8;--c1:#c75000;--c2:#00815f;--c3:#a8528a;--c4:#9a6a00;--c5:#30363d;--pub:#767d86;--warn:#8a1c00;--warnback:#fdf0ea}
@media screen and (prefers-color-scheme:dark){:root{--back:#14171b;--text:#e4e7eb;--soft:#9aa3ae;--rule:#39404a;--grid:#272c33;
--panel:#1c2026;--accent:#7db8f0;--c0:#56b4e9;--c1:#f08a3c;--c2:#2fc79b;--c3:#dd94c0;--c4:#e6b422;--c5:#d0d6dd;--pub:#8b939d;
--warn:#ffb59c;--warnback:#3a1f16}}
*{box-sizing:border-box}
html{color-scheme:light dark}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 64px}
h1{font-size:27px;line-height:1.25;margin:0 0 6px}
h2{font-size:21px;margin:44px 0 10px;padding-top:12px;border-top:2px solid var(--text)}
h3{font-size:17px;margin:30px 0 8px}
h4{font-size:15px;margin:18px 0 6px}
p{margin:6px 0;max-width:82ch}
a{color:var(--accent)}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
.command{display:block;background:var(--panel);border:1px solid var(--rule);border-radius:4px;padding:8px 10px;margin:10px 0}
.soft,.note{color:var(--soft)}
.note{font-size:13.5px}
nav{margin:14px 0;font-size:14px}
nav a{display:inline-block;margin-right:16px}
.alert{border:2px solid var(--warn);background:var(--warnback);color:var(--warn);border-radius:4px;padding:10px 14px;margin:14px 0;font-weight:600}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(255px,1fr));gap:12px;margin:14px 0}
.card{border:1px solid var(--rule);border-radius:6px;padding:12px 14px;background:var(--panel)}
.card .what{font-size:13px;color:var(--soft)}
.card .big{font-size:30px;font-weight:650;line-height:1.2;font-variant-numeric:tabular-nums}
.card .big small{font-size:14px;font-weight:400;color:var(--soft)}
.card .small{font-size:13px}
.card table{width:100%;margin-top:8px;font-size:12.5px}.card th,.card td{padding:2px 0 2px 8px}.card tbody th{text-align:left;padding-left:0;white-space:normal;overflow-wrap:anywhere}.card thead th{border-bottom:0;font-weight:400;color:var(--soft)}.card tr:last-child>*{border-bottom:0}.card thead td{border:0}
header p{max-width:none}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:18px 26px;margin:8px 0 14px}
.stack{display:flex;flex-direction:column;gap:12px}
figure{margin:0;break-inside:avoid}
figcaption{font-size:13.5px;font-weight:600;margin-bottom:4px}
figure svg{display:block;width:100%;height:auto;max-width:620px}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--text)}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}svg .name{fill:var(--soft)}
svg .grid{stroke:var(--grid);fill:none}svg .axis{stroke:var(--soft);fill:none}svg .shade{fill:var(--panel)}
svg .line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
svg .bar{fill:none;stroke:currentColor;stroke-width:1.2}
svg .whisker{fill:none;stroke:var(--text);stroke-width:1.4}
svg g{fill:currentColor;stroke:currentColor;stroke-width:1}
svg g.tail{fill:var(--back)}svg g.tail .line{stroke-width:1;fill:none}
svg g.straight .line{stroke-width:1;fill:none}
svg g.tail .fill{fill:currentColor;fill-opacity:.35}
svg g.pub{fill:var(--back)}svg g.pub .line{stroke-width:1.2;fill:none}
svg g.pub .fill{fill:none;stroke:currentColor;stroke-dasharray:4 3}
svg .fill{stroke:none}svg .hatch{stroke:var(--back);stroke-width:2;fill:none}
.s0{color:var(--c0)}.s1{color:var(--c1)}.s2{color:var(--c2)}.s3{color:var(--c3)}.s4{color:var(--c4)}.s5{color:var(--c5)}.pub{color:var(--pub)}
.legend li,.card,h1,h2,h3,li,p{overflow-wrap:anywhere}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:6px 0;padding:0;font-size:13.5px}
.legend li{display:flex;align-items:center;gap:7px}
.legend svg.key{width:34px;height:12px;flex:none}
.tables{display:flex;flex-wrap:wrap;gap:14px 34px;margin:8px 0}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:4px 0;break-inside:avoid}
caption{text-align:left;font-weight:600;font-size:13.5px;padding-bottom:3px}
th,td{padding:3px 9px;text-align:right;border-bottom:1px solid var(--grid);vertical-align:bottom}
th{font-weight:600}thead th{border-bottom:1.5px solid var(--soft);max-width:13em}
tbody th{text-align:right;font-weight:600}
table.one tbody th{text-align:left;white-space:nowrap}
td.pub,th.pub{color:var(--soft);font-style:italic}
td{white-space:nowrap}
table.parts{font-size:12.5px}table.parts :is(th,td){padding:3px 5px}
table.words{width:100%}table.words th,table.words td{text-align:left;vertical-align:top;white-space:normal;overflow-wrap:break-word}
table.words tbody th{white-space:nowrap}table.facts{width:auto}
table.limits th:nth-child(1){width:17%}table.limits th:nth-child(2){width:11%}table.limits th:nth-child(3){width:24%}
.differs{font-size:11.5px;font-weight:600;color:var(--warn);border:1px solid var(--warn);border-radius:3px;padding:0 4px;margin-left:6px;white-space:nowrap}
ul.list{padding-left:20px;margin:6px 0}ul.list li{margin:4px 0;max-width:95ch}
.kind{font-size:12px;font-weight:600;border:1px solid var(--rule);border-radius:3px;padding:0 5px;margin-right:6px}
details{margin:10px 0;border:1px solid var(--rule);border-radius:4px;padding:6px 12px}
summary{cursor:pointer;font-weight:600;font-size:14px}
footer{margin-top:44px;border-top:1px solid var(--rule);padding-top:10px;font-size:13px;color:var(--soft)}
@page{margin:14mm 12mm}
@media print{:root{--text:#000;--soft:#333;--panel:#fff;--grid:#ddd;--accent:#000;--warnback:#fff;--pub:#555}
body{font-size:9.5pt}main{max-width:none;padding:0}nav{display:none}h1{font-size:17pt}h2{font-size:13pt;margin-top:20pt}h3{font-size:11pt}
h2,h3,h4,.legend,figcaption,caption{break-after:avoid}a{text-decoration:none}
.plots{grid-template-columns:1fr 1fr;gap:10px 16px}.cards{grid-template-columns:repeat(3,1fr)}.card,li,tr{break-inside:avoid}
table,.legend,figcaption,caption{font-size:7.6pt}th,td{padding:1.5px 5px}.wide{overflow:visible}
table.parts{font-size:7pt}table.parts :is(th,td){padding:1.5px 3px}
table.words:not(.limits) :is(th,td){overflow-wrap:anywhere}details{border:0;padding:0}details::details-content{display:block;content-visibility:visible}.note,.card .small,.card .what{font-size:8pt}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"#;
