const { data, layout } = JSON.parse(document.getElementById("content").textContent);
Plotly.newPlot(document.getElementById("figure"), data, layout, CONFIG);
