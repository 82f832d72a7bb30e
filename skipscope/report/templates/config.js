// Of every figure: no button that sends it to a server, which Plotly has by default.
const CONFIG = {
  displaylogo: false, responsive: true, showLink: false, showSendToCloud: false, showEditInChartStudio: false,
  plotlyServerURL: "", modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
};
